-- Undeploys: values and tombstones move to the history in the same statement.
WITH gone AS (
    DELETE FROM {g}.deployment_entry WHERE scope = %(scope)s
    RETURNING scope, namespace, key, version, value, actor, valid_from, time_ms
)
INSERT INTO {g}.deployment_entry_history (scope, namespace, key, version, value, actor, valid_from, time_ms, valid_to)
SELECT gone.*, %(valid_to)s::bigint FROM gone
