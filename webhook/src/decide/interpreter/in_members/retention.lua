-- Retain: what is desired, in the only fields that a member's Volcano lets change; the rest as observed.
--
-- The rule of `retain_fields` in job_copies.rs, field by field. Tasks can not be added, removed or renamed: they are
-- told apart by their place. A partitioned task keeps its size. An absent minimum is what it was on creation.

local function read_number(value)
  if type(value) == "number" and value >= 0 and value % 1 == 0 then return value end
end

-- Not more than Kubernetes counts to.
local function read_count(value)
  return math.min(read_number(value) or 0, 4294967295)
end

local function read_table(value)
  if type(value) == "table" then return value end
  return {}
end

local function retain_counts(kept, desired)
  local before, minimum = read_count(kept.replicas), read_number(desired.minAvailable)
  local replicas = read_number(desired.replicas) or before
  kept.replicas = replicas
  if minimum then
    kept.minAvailable = math.min(minimum, replicas)
  elseif before ~= replicas then
    kept.minAvailable = replicas
  end
end

function Retain(desired, observed)
  local kept, wanted = observed.spec, read_table(desired.spec)
  if type(kept) ~= "table" then return desired end
  kept.priorityClassName = nil
  if type(wanted.priorityClassName) == "string" then kept.priorityClassName = wanted.priorityClassName end
  local tasks, others = read_table(kept.tasks), read_table(wanted.tasks)
  local same, replicas, minimums = #tasks == #others, 0, 0
  for place, task in ipairs(tasks) do
    if same and type(task.partitionPolicy) ~= "table" then retain_counts(task, others[place]) end
    replicas = replicas + read_count(task.replicas)
    minimums = minimums + read_count(read_number(task.minAvailable) or task.replicas)
  end
  local minimum = read_count(wanted.minAvailable)
  if minimum == 0 then minimum = minimums end
  kept.minAvailable = math.min(minimum, replicas)
  desired.spec = kept
  return desired
end
