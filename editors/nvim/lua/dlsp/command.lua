--- `:Dlsp {subcommand}`. Each entry below is one subcommand.
local client_of = require('dlsp.client')

local M = {}

---@param title string
---@param lines string[]
local function show(title, lines)
  vim.cmd('botright new')
  local bufnr = vim.api.nvim_get_current_buf()
  vim.bo[bufnr].buftype, vim.bo[bufnr].bufhidden, vim.bo[bufnr].swapfile = 'nofile', 'wipe', false
  vim.api.nvim_buf_set_name(bufnr, ('dlsp://%s/%d'):format(title, bufnr))
  vim.api.nvim_buf_set_lines(bufnr, 0, -1, false, lines)
  vim.bo[bufnr].modifiable = false
  vim.api.nvim_win_set_height(0, math.min(#lines, 15))
  vim.keymap.set('n', 'q', '<Cmd>close<CR>', { buffer = bufnr })
end

--- A plain value as indented `key: value` lines, keys in order.
---@param value table
---@param indent string
---@param lines string[]
---@return string[]
local function outline(value, indent, lines)
  local keys = vim.tbl_keys(value)
  table.sort(keys, function(a, b)
    return tostring(a) < tostring(b)
  end)
  for _, key in ipairs(keys) do
    local inner = value[key]
    if type(inner) == 'table' and next(inner) ~= nil then
      lines[#lines + 1] = ('%s%s:'):format(indent, key)
      outline(inner, indent .. '  ', lines)
    elseif inner ~= vim.NIL then
      local text = type(inner) == 'table' and '-' or tostring(inner)
      lines[#lines + 1] = ('%s%s: %s'):format(indent, key, (text:gsub('\n', '\\n')))
    end
  end
  return lines
end

local function here()
  return { textDocument = vim.lsp.util.make_text_document_params(0) }
end

--- What is paused now, by scope, as the server last answered; a document's scope is its address.
---@type table<string, boolean>
local paused = {}

---@param scope 'all'|'language'|'document'
local function pause(scope)
  local uri = vim.uri_from_bufnr(0)
  local key = scope == 'all' and scope or scope == 'document' and uri or vim.bo.filetype
  local params = { scope = scope, uri = uri, paused = not paused[key] }
  client_of.ask('dlsp/pause', params, function(result)
    paused[key] = result.paused
    require('dlsp').dismiss()
    vim.notify(('dlsp: %s %s'):format(scope, result.paused and 'paused' or 'resumed'))
  end)
end

---@param name string
local function use_model(name)
  local client = client_of.any()
  if client then
    client.settings = vim.tbl_deep_extend('force', client.settings, { dlsp = { model = name } })
    client:notify('workspace/didChangeConfiguration', { settings = client.settings })
    vim.notify('dlsp: model ' .. name .. ' until Neovim ends; to keep it see :help dlsp-settings')
  end
end

local function pick_model()
  client_of.ask('dlsp/models', vim.empty_dict(), function(models)
    vim.ui.select(models, {
      prompt = 'Model of dlsp',
      format_item = function(model)
        local state = model.current and 'in use' or model.onDisk and 'on disk' or 'to be fetched'
        return ('%s (%d MB, %s, %s)'):format(
          model.name,
          model.sizeMb or 0,
          model.licence or '',
          state
        )
      end,
    }, function(model)
      if model then
        use_model(model.name)
      end
    end)
  end)
end

---@type table<string, { run: fun(argument: string?), arguments: string[]? }>
local subcommands = {
  status = {
    run = function()
      vim.api.nvim_echo({ { table.concat(require('dlsp.status').lines(), '\n') } }, false, {})
    end,
  },
  why = {
    run = function()
      client_of.ask('dlsp/why', here(), function(result)
        local nothing = result == nil or result == vim.NIL
        if nothing then
          show('why', { 'nothing was asked here yet' })
          return
        end
        local lines = vim.list_extend(result.words or {}, { '' })
        result.words = nil
        show('why', outline(result, '', lines))
      end)
    end,
  },
  stats = {
    run = function()
      client_of.ask('dlsp/stats', vim.empty_dict(), function(result)
        show('stats', outline(result, '', {}))
      end)
    end,
  },
  pause = {
    arguments = { 'all', 'language', 'document' },
    run = function(argument)
      pause(argument or 'document')
    end,
  },
  model = {
    run = function(argument)
      if argument then
        use_model(argument)
      else
        pick_model()
      end
    end,
  },
  log = {
    run = function()
      vim.cmd.tabnew({ args = { vim.lsp.log.get_filename() } })
      vim.cmd.normal({ args = { 'G' }, bang = true })
    end,
  },
  restart = {
    run = function()
      client_of.ask('dlsp/restart', vim.empty_dict(), function()
        vim.notify('dlsp: the engine restarts')
      end)
    end,
  },
  replay = {
    run = function()
      client_of.ask('dlsp/replay', here(), function(result)
        vim.notify('dlsp: written to ' .. result.path)
      end)
    end,
  },
}

---@param arguments string[]
function M.run(arguments)
  local name, argument = arguments[1] or 'status', arguments[2]
  local subcommand = subcommands[name]
  local allowed = subcommand and subcommand.arguments
  if not subcommand then
    vim.notify('no such command: :Dlsp ' .. name, vim.log.levels.ERROR)
  elseif allowed and argument and not vim.list_contains(allowed, argument) then
    vim.notify(':Dlsp ' .. name .. ' ' .. table.concat(allowed, '|'), vim.log.levels.ERROR)
  else
    subcommand.run(argument)
  end
end

---@param lead string
---@param line string
---@return string[]
function M.complete(lead, line)
  local words = vim.split(line, '%s+', { trimempty = true })
  local first = #words < 2 or (#words == 2 and lead ~= '')
  local known = subcommands[words[2]]
  local choices = first and vim.tbl_keys(subcommands) or known and known.arguments or {}
  choices = vim.tbl_filter(function(choice)
    return vim.startswith(choice, lead)
  end, choices)
  table.sort(choices)
  return choices
end

return M
