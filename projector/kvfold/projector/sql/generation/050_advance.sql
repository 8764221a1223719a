-- Moves a partition's offset, or refuses: the fence of every fold commit. Raising, rather than counting rows at the
-- client, lets the whole commit go in one round trip: after the error nothing of it is carried out.
CREATE FUNCTION {g}.advance(
    partition_ int, epoch_ bigint, expected_ bigint, next_ bigint, time_ms_ bigint, level_ int,
    last_offset_ bigint, last_digest_ text, last_timestamp_ms_ bigint
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    UPDATE {g}.partition_offset
    SET offset_next = next_, time_ms = time_ms_, format_level = level_, last_offset = last_offset_,
        last_digest = last_digest_, last_timestamp_ms = last_timestamp_ms_, committed_at = clock_timestamp()
    WHERE partition = partition_ AND offset_next = expected_ AND epoch = epoch_;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'partition % is not at offset % with epoch %', partition_, expected_, epoch_
            USING ERRCODE = 'KVF01';
    END IF;
END $$;
