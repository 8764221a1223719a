-- Deletes an instance's keys: they move to the history in the same statement.
WITH gone AS (DELETE FROM {g}.orchestration_kv WHERE scope = %(scope)s RETURNING *)
INSERT INTO {g}.orchestration_kv_history SELECT gone.*, %(valid_to)s::bigint FROM gone
