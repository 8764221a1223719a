-- Whether a precondition holds for the current version, nil where the entry is absent. `first` is where it begins in ARGV:
-- any|absent|present|version, then 1 where it is negated, then the versions. Texts are compared: int64 does not fit a number.
local function holds(current, first)
    local kind = ARGV[first]
    if kind == 'any' then
        return true
    elseif kind == 'absent' then
        return not current
    elseif kind == 'present' then
        return current and true
    end
    local listed = false
    for index = first + 2, #ARGV do
        listed = listed or current == ARGV[index]
    end
    return listed ~= (ARGV[first + 1] == '1')
end
