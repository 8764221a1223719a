-- KEYS[1] is the entry, ARGV the precondition. Gives {1, removed version}, '0' for none, or {0, current version}.
local current = redis.call('HGET', KEYS[1], 'ver')
if not current then
    return {1, '0'}
end
if not holds(current, 1) then
    return {0, current}
end
redis.call('DEL', KEYS[1])
return {1, current}
