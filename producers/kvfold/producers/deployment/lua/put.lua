-- KEYS[1] is the entry, ARGV[1] its new value, ARGV[2…] the precondition. Gives {1, new version} or {0, current version}.
local current = redis.call('HGET', KEYS[1], 'ver')
if not holds(current, 2) then
    return {0, current or '0'}
end
local time = redis.call('TIME')
local updated_ms = time[1] .. string.format('%03d', math.floor(time[2] / 1000))
if current then
    redis.call('HINCRBY', KEYS[1], 'ver', 1)
    redis.call('HSET', KEYS[1], 'v', ARGV[1], 'ts', updated_ms)
    return {1, redis.call('HGET', KEYS[1], 'ver')}
end
-- No tombstone tells the version that a deleted or evicted entry had; the clock is above all of them.
local created = time[1] .. string.format('%06d', time[2])
redis.call('HSET', KEYS[1], 'v', ARGV[1], 'ver', created, 'ts', updated_ms)
return {1, created}
