-- What every script knows: the clock, and how a record is kept under its key.
--
-- In progress it is a hash. Completed it is a string: the header, the
-- fingerprint, and what Rust wrote of the answer. So a sweep, which looks for
-- what was left in progress, finds it by its type. Times are microseconds since
-- 1970; a test brings its own clock as the first argument.

local FIELDS = { 'token', 'attempt', 'created_at', 'expires_at', 'fingerprint', 'lease_until', 'speculative' }

-- Version, status, attempt, created_at, expires_at, completed_at, token, and the
-- length of the fingerprint.
local HEADER = '>BI2I4I8I8I8c16I2'
local HEADER_LENGTH = 49
local VERSION = 2

-- How much longer than a record lives Redis keeps it, in milliseconds: a clock
-- that steps back, or a replica's that was ahead, finds it there all the same.
local GRACE = 60000

-- About the last moment of the calendar: what is later counts as that.
local LATEST = 253402207200000000

local key = KEYS[1]

local function time()
  if ARGV[1] ~= '' then
    return tonumber(ARGV[1])
  end
  local parts = redis.call('TIME')
  return parts[1] * 1000000 + parts[2]
end

local now = time()

local function after(span)
  return math.min(now + span, LATEST)
end

-- Exact where Lua's own way would round.
local function text(number)
  return string.format('%.0f', number)
end

local function corrupt(what)
  error({ err = 'CORRUPT ' .. what })
end

local function read_hash()
  local values = redis.call('HMGET', key, unpack(FIELDS))
  local record = {}
  for place, name in ipairs(FIELDS) do
    record[name] = values[place] or corrupt(name)
  end
  for _, name in ipairs({ 'attempt', 'created_at', 'expires_at', 'lease_until' }) do
    record[name] = tonumber(record[name]) or corrupt(name)
  end
  record.in_progress = true
  record.status = 0
  record.speculative = record.speculative == '1'
  return record
end

local function read_string()
  local header = redis.call('GETRANGE', key, 0, HEADER_LENGTH - 1)
  if #header < HEADER_LENGTH or header:byte() ~= VERSION then
    corrupt('header')
  end
  local _, status, attempt, created_at, expires_at, completed_at, token, length =
    struct.unpack(HEADER, header)
  return {
    status = status,
    attempt = attempt,
    created_at = created_at,
    expires_at = expires_at,
    completed_at = completed_at,
    token = token,
    fingerprint = redis.call('GETRANGE', key, HEADER_LENGTH, HEADER_LENGTH + length - 1),
    lease_until = 0,
  }
end

-- The record without its answer, or nil.
local function read()
  local kind = redis.call('TYPE', key).ok
  if kind == 'none' then
    return nil
  elseif kind == 'hash' then
    return read_hash()
  elseif kind == 'string' then
    return read_string()
  end
  corrupt('type')
end

local function has_live_lease(record)
  return record.lease_until > now
end

local function is_expired(record)
  return record.expires_at <= now and not has_live_lease(record)
end

-- For how many milliseconds Redis keeps what matters until `time`.
local function keep_until(time)
  return text(math.ceil(math.max(time - now, 0) / 1000) + GRACE)
end

-- The record as Rust reads it: all there is.
local function whole(record)
  if record.in_progress then
    return redis.call('HMGET', key, unpack(FIELDS))
  end
  return redis.call('GET', key)
end

-- Of a completed record the resource id, for how many bytes its headers and body
-- are kept (nil where they are not), and where what precedes them ends.
local function outline(record)
  local place = HEADER_LENGTH + #record.fingerprint
  local length = redis.call('GETRANGE', key, place, place):byte() or corrupt('resource_id')
  local id = redis.call('GETRANGE', key, place + 1, place + length)
  local rest = place + 1 + length
  -- Their length comes before the headers.
  local kept = redis.call('STRLEN', key) - rest - 4
  return id, kept >= 0 and kept or nil, rest
end

local function write_completed(record, token, status, answer)
  local header = struct.pack(
    HEADER, VERSION, status, record.attempt, record.created_at, record.expires_at, now, token,
    #record.fingerprint
  )
  redis.call('SET', key, header .. record.fingerprint .. answer, 'PX', keep_until(record.expires_at))
end
