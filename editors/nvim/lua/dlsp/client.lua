--- The language client: which one serves a buffer, how it is asked, and that it comes back.
local M = {}

--- A server that ends more often than this within the time is left alone.
local RESTARTS, WITHIN_MS = 5, 180000

---@type table<integer, { config: vim.lsp.ClientConfig, buffers: table<integer, true> }>
local served = {}
---@type integer[] when the server was restarted, in milliseconds
local restarts = {}

---@param bufnr integer
---@return vim.lsp.Client?
function M.find(bufnr)
  return vim.lsp.get_clients({ name = 'dlsp', bufnr = bufnr })[1]
end

--- Any client of ours: for what does not concern one buffer.
---@return vim.lsp.Client?
function M.any()
  return M.find(vim.api.nvim_get_current_buf()) or vim.lsp.get_clients({ name = 'dlsp' })[1]
end

--- Asks the server one of its own questions. `done` is called with the answer; a failure is told.
---@param method string
---@param params table
---@param done fun(result: any)
function M.ask(method, params, done)
  local client = M.any()
  if not client then
    vim.notify('dlsp serves no buffer here; see :checkhealth dlsp', vim.log.levels.WARN)
    return
  end
  client:request(method, params, function(err, result)
    if not err then
      done(result)
    elseif err.code == vim.lsp.protocol.ErrorCodes.MethodNotFound then
      vim.notify(('this dlsp does not know %s; update it'):format(method), vim.log.levels.WARN)
    else
      vim.notify('dlsp: ' .. err.message, vim.log.levels.ERROR)
    end
  end)
end

--- Tells where the cursor rests, so that the engine can read ahead before anything is typed.
function M.rests()
  local client = M.find(vim.api.nvim_get_current_buf())
  if client then
    local position = vim.lsp.util.make_position_params(0, client.offset_encoding)
    client:notify('dlsp/cursor', position)
  end
end

---@param client vim.lsp.Client
---@param bufnr integer
function M.attached(client, bufnr)
  local record = served[client.id] or { config = client.config, buffers = {} }
  record.buffers[bufnr] = true
  served[client.id] = record
  vim.api.nvim_create_autocmd('CursorHold', {
    group = vim.api.nvim_create_augroup('dlsp.rest.' .. bufnr, {}),
    buffer = bufnr,
    callback = M.rests,
  })
  local native = require('dlsp.native')
  if native.available() then
    native.attach(bufnr)
  else
    require('dlsp.ghost').attach(bufnr)
  end
end

--- A server that was killed or has crashed is started again; one that was asked to end is not.
---@param client_id integer
---@param code integer
---@param signal integer
function M.exited(client_id, code, signal)
  local record = served[client_id]
  served[client_id] = nil
  vim.schedule(function()
    require('dlsp.status').forget(client_id)
    local crashed = code ~= 0 or signal ~= 0
    if record and crashed and vim.v.exiting == vim.NIL and vim.lsp.is_enabled('dlsp') then
      M.revive(record.config, record.buffers)
    end
  end)
end

---@param config vim.lsp.ClientConfig
---@param buffers table<integer, true>
function M.revive(config, buffers)
  local now = vim.uv.now()
  restarts = vim.tbl_filter(function(time)
    return now - time < WITHIN_MS
  end, restarts)
  if #restarts >= RESTARTS then
    vim.notify('dlsp ended several times; see :Dlsp log, then :Dlsp restart', vim.log.levels.ERROR)
    return
  end
  restarts[#restarts + 1] = now
  for bufnr in pairs(buffers) do
    if vim.api.nvim_buf_is_loaded(bufnr) then
      vim.lsp.start(vim.deepcopy(config), { bufnr = bufnr })
    end
  end
end

return M
