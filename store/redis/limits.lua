-- One step on the shared state of a scope's limiters; limiter.Ledger is the same in Go.
-- Times are whole microseconds, readings of a clock that never steps back.
-- KEYS: the scope's own hash, its channels, when each channel is idle, its methods.
-- ARGV: what to do, the time or 0, and then see below.
local NONE = 9007199254740991 -- no reservation has found less
local op, at = ARGV[1], tonumber(ARGV[2])
local channel, method, cost, mode = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
local rules, names = {}, {'token', 'ceiling', 'delay', 'rule'}
for i, name in ipairs(names) do
  rules[name] = {every = tonumber(ARGV[5 + 2 * i]), burst = tonumber(ARGV[6 + 2 * i])}
end
local seq, shared = tonumber(ARGV[15]), ARGV[16]                        -- of cancel
local on_channel, on_method, length = ARGV[15], ARGV[16], tonumber(ARGV[17]) -- of penalise
local max_channels, max_methods = tonumber(ARGV[18]), tonumber(ARGV[19])

local function number(n) return string.format('%.0f', n) end

local function read(text, n)
  local list = {}
  for word in string.gmatch(text or '', '%S+') do list[#list + 1] = tonumber(word) end
  for i = #list + 1, n do list[i] = 0 end
  return list
end

local function gauge(list, i) return {full = list[i], since = list[i + 1], last = list[i + 2], low = list[i + 3]} end
local function plain(g) return number(g.full) .. ' ' .. number(g.since) .. ' ' .. number(g.last) .. ' ' .. number(g.low) end

-- The scope, and the clock.
local wall = at
if at == 0 then
  local now = redis.call('TIME')
  wall = tonumber(now[1]) * 1000000 + tonumber(now[2])
end
local kept = redis.call('HGET', KEYS[1], 'state')
local s = read(kept, 12)
local t, stepped, last_seq, closed = s[1] + math.max(wall - s[2], 0), wall < s[2], s[3], s[4]
local g = {token = gauge(s, 5), ceiling = gauge(s, 9)}
if not kept then
  t = wall
  local up = at == 0 and string.match(redis.call('INFO', 'server'), 'uptime_in_seconds:(%d+)')
  if up then -- a server that has just begun may have lost what it knew
    for _, name in ipairs({'token', 'ceiling'}) do
      local depth = rules[name].every * rules[name].burst
      if tonumber(up) * 1000000 < depth then g[name].full = t + depth end
    end
    stepped = true
  end
end

-- The channel, and the methods.
local field, overflow = channel, false
local row = channel ~= '' and redis.call('HGET', KEYS[2], channel)
if channel ~= '' and not row and op ~= 'peek' then -- some of those that are idle make room
  for _, idle in ipairs(redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', number(t), 'LIMIT', 0, 4)) do
    redis.call('HDEL', KEYS[2], idle)
    redis.call('ZREM', KEYS[3], idle)
  end
end
if channel ~= '' and not row and redis.call('HLEN', KEYS[2]) >= max_channels then
  field, overflow = '\1' .. rules.rule.every .. '/' .. rules.rule.burst, true
  row = redis.call('HGET', KEYS[2], field)
end
local c = read(row or nil, 9)
g.delay, g.rule = gauge(c, 1), gauge(c, 5)
local closed_channel = c[9]
local whole, here = '\0' .. method, channel .. '\0' .. method
local closed_method = method ~= '' and tonumber(redis.call('HGET', KEYS[4], whole) or 0) or 0
local closed_here = method ~= '' and channel ~= '' and tonumber(redis.call('HGET', KEYS[4], here) or 0) or 0

local function level(name, when) return math.max(g[name].full - when, 0) end

local function wait(name, n)
  local r = rules[name]
  if r.every == 0 then return 0 end
  if n < 1 or n > r.burst then return -1 end
  return math.max(level(name, t) + n * r.every - r.every * r.burst, 0)
end

local function take(name, when, amount)
  local b, found = g[name], level(name, when)
  if found == 0 then b.since, b.low = last_seq, NONE else b.low = math.min(b.low, found) end
  b.full, b.last = math.max(b.full, when) + amount, last_seq
end

local function take_up_to(name, n)
  local r = rules[name]
  if r.every == 0 then return end
  local spare = r.burst > 1 and r.every or 0
  local room = math.max(r.every * r.burst + spare - level(name, t), 0)
  take(name, t, math.min(math.min(math.max(n, 0), r.burst) * r.every, room))
end

local function give_back(name, amount)
  local b = g[name]
  amount = math.min(amount, level(name, t))
  if seq < b.since or amount == 0 then return false end
  if seq ~= b.last then
    amount = math.min(amount, b.low)
    b.low = b.low - amount
  end
  b.full = b.full - amount
  return amount > 0
end

local function save()
  redis.call('HSET', KEYS[1], 'state', table.concat({number(t), number(wall), number(last_seq), number(closed), plain(g.token), plain(g.ceiling)}, ' '))
  redis.call('PEXPIRE', KEYS[1], 3456000000) -- 40 days: longer than any bucket takes to fill
  for i = 2, 4 do redis.call('PEXPIRE', KEYS[i], 3456000000) end
end

local function save_channel()
  redis.call('HSET', KEYS[2], field, plain(g.delay) .. ' ' .. plain(g.rule) .. ' ' .. number(closed_channel))
  redis.call('ZADD', KEYS[3], number(math.max(g.delay.full, g.rule.full, closed_channel)), field)
end

-- What refuses the call, apart from the levels of the token's buckets: 0 the
-- token's bucket, 1 the method, 2 the method in the channel, 3 the channel.
local function refused()
  if closed > t then return 0, closed - t end
  if math.max(closed_method, closed_here) > t then
    if closed_method >= closed_here then return 1, closed_method - t end
    return 2, closed_here - t
  end
  if channel == '' then return 0, 0 end
  local delay, rule = wait('delay', 1), wait('rule', cost)
  if rule < 0 then return 3, -1 end
  return 3, math.max(closed_channel - t, delay, rule, 0)
end

local function reserve()
  if mode == 'take' then
    last_seq = last_seq + 1
    take_up_to('token', cost)
    take_up_to('ceiling', cost)
    save()
    return {1, 0, 0, last_seq, 0}
  end
  local token, ceiling = wait('token', cost), wait('ceiling', cost)
  if token < 0 or ceiling < 0 then return {0, -1, 0, 0, 0} end
  local ahead, by, left = math.max(token, ceiling), refused()
  if ahead > 0 and mode ~= 'ahead' and (left == 0 or by ~= 0) then return {0, ahead, 0, 0, 0} end
  if left ~= 0 then return {0, left, by, 0, 0} end
  last_seq = last_seq + 1
  take('token', t + ahead, cost * rules.token.every)
  take('ceiling', t + ahead, cost * rules.ceiling.every)
  if channel ~= '' then
    take('delay', t + ahead, rules.delay.every)
    take('rule', t + ahead, cost * rules.rule.every)
    save_channel()
  end
  save()
  return {1, ahead, 0, last_seq, overflow and 1 or 0}
end

local function cancel()
  local token, ceiling = give_back('token', cost * rules.token.every), give_back('ceiling', cost * rules.ceiling.every)
  local delay, rule = false, false
  if row and overflow == (shared == '1') then
    delay, rule = give_back('delay', rules.delay.every), give_back('rule', cost * rules.rule.every)
  end
  if delay or rule then save_channel() end
  if token or ceiling or delay or rule then save() end
  return {}
end

local function close_method(name)
  if redis.call('HEXISTS', KEYS[4], name) == 0 and redis.call('HLEN', KEYS[4]) >= max_methods then
    local all = redis.call('HGETALL', KEYS[4])
    for i = 1, #all, 2 do
      if tonumber(all[i + 1]) <= t then redis.call('HDEL', KEYS[4], all[i]) end
    end
    if redis.call('HLEN', KEYS[4]) >= max_methods then return false end
  end
  redis.call('HSET', KEYS[4], name, number(math.max(tonumber(redis.call('HGET', KEYS[4], name) or 0), t + length)))
  return true
end

local function penalise()
  if on_channel == '' and on_method == '' and closed >= t + length then return {} end
  if on_channel ~= '' or on_method ~= '' then
    last_seq = last_seq + 1
    take_up_to('token', 1)
  end
  if on_method == '' or not close_method(on_channel .. '\0' .. on_method) then
    if on_channel ~= '' and not overflow then
      closed_channel = math.max(closed_channel, t + length)
      save_channel()
    else
      closed = math.max(closed, t + length)
    end
  end
  save()
  return {}
end

local function peek()
  local function left(reading) return math.max(reading - t, 0) end
  return {left(g.token.full), left(g.ceiling.full), left(g.delay.full), left(g.rule.full), left(closed), left(closed_method), left(closed_here), left(closed_channel)}
end

local function reset()
  closed, g.token, g.ceiling = 0, gauge(read('', 4), 1), gauge(read('', 4), 1)
  redis.call('DEL', KEYS[2], KEYS[3], KEYS[4])
  save()
  return {}
end

if stepped then save() end
return ({reserve = reserve, cancel = cancel, penalise = penalise, peek = peek, reset = reset})[op]()
