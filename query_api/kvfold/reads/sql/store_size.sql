-- Rows as the statistics collector knows them: counting them would read all of them.
SELECT p.serving,
       (SELECT json_object_agg(o.partition, o.offset_next) FROM {g}.partition_offset o),
       pg_total_relation_size('{g}.deployment_entry'::regclass),
       pg_total_relation_size('{g}.deployment_entry_history'::regclass),
       pg_stat_get_live_tuples('{g}.deployment_entry'::regclass)
FROM kvfold.pointer p
