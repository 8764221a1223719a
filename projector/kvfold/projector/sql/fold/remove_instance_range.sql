-- Deletes an instance: its row moves to the history in the same statement.
WITH gone AS (DELETE FROM {g}.orchestration_instance WHERE scope = %(scope)s RETURNING *)
INSERT INTO {g}.orchestration_instance_history SELECT gone.*, %(valid_to)s::bigint FROM gone
