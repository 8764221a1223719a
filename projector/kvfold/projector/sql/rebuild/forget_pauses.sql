DELETE FROM {g}.pause
