-- InterpretStatus: the status of a copy, with the counts that its Volcano forgot when it completed (volcano#4616).
--
-- The rule of `restore_forgotten_counts` in statuses.rs: a Completed copy that says of no pod what became of it did
-- what it was there for, and all pods that its share gave it count as succeeded.

local function read_table(value)
  if type(value) == "table" then return value end
  return {}
end

local function is_none(count)
  return count == nil or count == 0
end

local function has_forgotten(status)
  if read_table(status.state).phase ~= "Completed" then return false end
  for _, field in ipairs({ "pending", "running", "succeeded", "failed", "terminating", "unknown" }) do
    if not is_none(status[field]) then return false end
  end
  for _, task in pairs(read_table(status.taskStatusCount)) do
    for _, pods in pairs(read_table(read_table(task).phase)) do
      if not is_none(pods) then return false end
    end
  end
  return true
end

function ReflectStatus(observed)
  local status = read_table(observed.status)
  if not has_forgotten(status) then return status end
  local succeeded, counts = 0, {}
  for _, task in ipairs(read_table(read_table(observed.spec).tasks)) do
    local name, pods = task.name, task.replicas
    if type(name) == "string" and type(pods) == "number" and pods > 0 and pods % 1 == 0 then
      succeeded = succeeded + pods
      counts[name] = { phase = { Succeeded = pods } }
    end
  end
  status.succeeded = succeeded
  status.taskStatusCount = counts
  return status
end
