DELETE FROM {g}.orchestration_instance WHERE scope = %(scope)s
