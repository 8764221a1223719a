-- Shuts every earlier owner out: from here on only commits with the new epoch move the offset.
UPDATE {g}.partition_offset SET epoch = %(epoch)s
WHERE partition = %(partition)s AND epoch < %(epoch)s
  AND EXISTS (SELECT FROM {g}.claim WHERE partition = %(partition)s AND owner = %(owner)s AND epoch = %(epoch)s)
