-- InterpretHealth: a copy is healthy while it does its work.
--
-- The rule of `is_healthy` in statuses.rs. One that waits for its gang, or that its Volcano has not looked at, is not:
-- a graceful eviction waits for it, and a failover that the user asked for can move it.

local function read_field(object, name)
  if type(object) == "table" then return object[name] end
end

function InterpretHealth(observed)
  local phase = read_field(read_field(observed.status, "state"), "phase")
  return phase == "Running" or phase == "Completing" or phase == "Completed"
end
