-- Held until the end of the transaction: processes that start together make the schema one after the other.
SELECT pg_advisory_xact_lock(hashtextextended('kvfold_log', 0))
