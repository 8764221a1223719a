DELETE FROM {g}.pause WHERE partition = %(partition)s
