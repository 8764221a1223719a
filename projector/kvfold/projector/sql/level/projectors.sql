-- Live projector processes and the format level that each can fold; NULL for one of a release that does not say.
-- One that is connected is alive, whatever it said last.
SELECT coalesce(p.owner, s.owner), p.format_level
FROM (
    SELECT DISTINCT substr(application_name, length('kvfold-control ') + 1) AS owner FROM pg_stat_activity
    WHERE datname = current_database() AND starts_with(application_name, 'kvfold-control ')
) AS s
LEFT JOIN kvfold.projector p ON p.owner = s.owner AND p.expires_at > clock_timestamp()
ORDER BY 1
