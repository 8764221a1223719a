SELECT part.partition,
       coalesce(
           (
               SELECT record."offset" FROM kvfold_log.log_record AS record
               WHERE record.partition = part.partition
               ORDER BY record."offset" LIMIT 1
           ),
           part.offset_next
       ) AS start,
       part.offset_next
FROM kvfold_log.log_partition AS part
WHERE part.partition = ANY (%(partitions)s)
