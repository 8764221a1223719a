-- Next offsets of any generation by partition, as JSON; NULL where its tables are not there (any more).
CREATE OR REPLACE FUNCTION kvfold.offsets(generation int) RETURNS json LANGUAGE plpgsql STABLE AS $$
DECLARE
    found json;
BEGIN
    EXECUTE format('SELECT json_object_agg(partition, offset_next ORDER BY partition) FROM kvfold_g%s.partition_offset', generation)
    INTO found;
    RETURN found;
EXCEPTION WHEN undefined_table OR invalid_schema_name THEN
    RETURN NULL;
END $$;
