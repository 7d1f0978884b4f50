--- What the servers last said about themselves. A change fires `User DlspStatus`.
local M = {}

---@class dlsp.Status
---@field state 'starting'|'downloading'|'ready'|'busy'|'paused'|'error'
---@field message string
---@field model string?
---@field progress number? 0 to 1
---@field lastMs number?

---@type table<integer, dlsp.Status>
local latest = {}

local function announce()
  vim.api.nvim_exec_autocmds('User', { pattern = 'DlspStatus', modeline = false })
  vim.cmd.redrawstatus()
end

---@param client_id integer
---@param params dlsp.Status
function M.update(client_id, params)
  local status = {}
  for key, value in pairs(params) do
    status[key] = value ~= vim.NIL and value or nil
  end
  local before = latest[client_id]
  latest[client_id] = status
  if status.state == 'error' and not (before and before.state == 'error') then
    vim.notify('dlsp: ' .. status.message, vim.log.levels.WARN)
  end
  announce()
end

---@param client_id integer
function M.forget(client_id)
  latest[client_id] = nil
  announce()
end

---@return dlsp.Status?
function M.current()
  local client = require('dlsp.client').any()
  return client and latest[client.id]
end

--- For a status line.
---@return string
function M.line()
  local status = M.current()
  if not status then
    return ''
  elseif status.state == 'ready' then
    return status.lastMs and ('dlsp %d ms'):format(status.lastMs) or 'dlsp'
  elseif status.progress then
    -- "%" would be an item of the status line.
    return ('dlsp %s %d/100'):format(status.state, status.progress * 100)
  end
  return 'dlsp ' .. status.state
end

--- In full, one fact a line.
---@return string[]
function M.lines()
  local status = M.current()
  local client = require('dlsp.client').any()
  if not client then
    return { 'dlsp serves no buffer; see :checkhealth dlsp' }
  elseif not status then
    return { 'state    running; it has not reported yet' }
  end
  local lines = { 'state    ' .. status.state }
  if status.message and status.message ~= '' then
    lines[#lines + 1] = 'message  ' .. status.message
  end
  if status.model then
    lines[#lines + 1] = 'model    ' .. status.model
  end
  if status.lastMs then
    lines[#lines + 1] = ('last     %d ms'):format(status.lastMs)
  end
  return lines
end

return M
