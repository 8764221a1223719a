-- Undeploys: values and tombstones move to the history in the same statement.
WITH gone AS (DELETE FROM {g}.deployment_entry WHERE scope = %(scope)s RETURNING *)
INSERT INTO {g}.deployment_entry_history SELECT gone.*, %(valid_to)s::bigint FROM gone
