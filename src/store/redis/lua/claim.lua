-- Judges a claim and writes what it leads to: `decide` of the crate's claim
-- module, line by line. Replies with the time, the outcome, and what belongs to
-- it.

local request = {
  token = ARGV[2],
  -- What a fresh record stores, and what the stored one is compared with.
  fingerprint = ARGV[3],
  compared = ARGV[4],
  -- Whether fingerprints of different schemes tell nothing.
  untold = ARGV[5] == '1',
  lease = tonumber(ARGV[6]),
  ttl = tonumber(ARGV[7]),
  key_time = tonumber(ARGV[8]),
  mode = ARGV[9],
  -- None without an archive.
  lookup_after = tonumber(ARGV[10]),
  refuse_abandoned = ARGV[11] == '1',
}
local REFUSED_AHEAD = tonumber(ARGV[12])
local OPAQUE_AHEAD = tonumber(ARGV[13])

-- A fingerprint that says nothing about its request.
local NONE = string.char(0x13)
local DIGEST_LENGTH = 32

local told_time = request.key_time
if told_time and told_time - now > OPAQUE_AHEAD then
  told_time = nil
end
if not told_time and request.mode == 'require' then
  return { now, 'refused', 'timestamp_missing' }
end
local too_far = told_time and told_time - now > REFUSED_AHEAD
if too_far and request.mode ~= 'all' then
  return { now, 'refused', 'timestamp_future' }
end

local expires_at = math.min(math.max(now, told_time or now) + request.ttl, LATEST)

local function asks_archive()
  if not request.lookup_after then
    return false
  elseif told_time and not too_far then
    return now - told_time > request.lookup_after
      or (request.mode ~= 'timestamped' and request.lookup_after == 0)
  end
  return request.mode == 'all'
end
local ask_archive = asks_archive()

local record = read()

local function write(attempt, created_at, speculative)
  local lease_until = after(request.lease)
  local ask = ask_archive or speculative or (attempt > 1 and request.lookup_after ~= nil)
  if record and not record.in_progress then
    redis.call('DEL', key)
  end
  redis.call('HSET', key,
    'token', request.token, 'attempt', text(attempt), 'created_at', text(created_at),
    'expires_at', text(expires_at), 'fingerprint', request.fingerprint,
    'lease_until', text(lease_until), 'speculative', speculative and '1' or '0')
  -- What is left in progress is owed to the archive, where there is one.
  if not request.lookup_after then
    redis.call('PEXPIRE', key, keep_until(math.max(expires_at, lease_until)))
  elseif record then
    redis.call('PERSIST', key)
  end
  return { now, 'claimed', attempt, created_at, expires_at, lease_until, ask and 1 or 0 }
end

local function fresh()
  return write(1, now, ask_archive)
end

local function scheme(fingerprint)
  return fingerprint:sub(1, math.max(#fingerprint - DIGEST_LENGTH, 0))
end

-- What tells the stored record's request from this one, if anything does. Lua
-- keeps one copy of a string: how long it takes to compare two tells nothing.
local function told_apart(record)
  local mine, theirs = request.compared, record.fingerprint
  if mine == NONE or theirs == NONE or mine == theirs then
    return nil
  elseif scheme(mine) == scheme(theirs) then
    return { now, 'mismatch' }
  end
  return not request.untold and { now, 'other_scheme', theirs } or nil
end

if not record then
  return fresh()
end
if record.in_progress then
  if record.token == request.token then
    return write(record.attempt, record.created_at, record.speculative)
  elseif has_live_lease(record) then
    local in_flight = { now, 'in_flight', record.lease_until }
    return not record.speculative and told_apart(record) or in_flight
  elseif record.speculative then
    -- A first attempt that lapsed before the archive had answered never ran.
    return fresh()
  end
end
if is_expired(record) then
  if request.lookup_after then
    return { now, 'expired', whole(record) }
  end
  return fresh()
end
local apart = told_apart(record)
if apart then
  return apart
elseif not record.in_progress then
  return { now, 'completed', whole(record) }
elseif request.refuse_abandoned then
  return { now, 'abandoned', record.created_at }
end
return write(record.attempt + 1, record.created_at, false)
