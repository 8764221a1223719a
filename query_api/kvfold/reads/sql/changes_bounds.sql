-- How far a partition is folded, and from where on its changes are still known, by family.
SELECT p.serving, o.offset_next, o.decisions_from, o.capsule_from, o.deployment_from, o.orchestration_from
FROM kvfold.pointer p
LEFT JOIN {g}.partition_offset o ON o.partition = $1
