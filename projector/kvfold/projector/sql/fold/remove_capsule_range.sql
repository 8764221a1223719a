-- Clears a prefix: what is removed moves to the history in the same statement.
WITH gone AS (
    DELETE FROM {g}.capsule_entry
    WHERE scope = %(scope)s AND key >= %(prefix)s AND (%(end)s::text IS NULL OR key < %(end)s::text)
    RETURNING *
)
INSERT INTO {g}.capsule_entry_history SELECT gone.*, %(valid_to)s::bigint FROM gone
