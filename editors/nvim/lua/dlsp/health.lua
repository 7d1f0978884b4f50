--- `:checkhealth dlsp`: what stands between the user and the first suggestion.
local M = {}

local health = vim.health

---@return string? command of the server as configured
local function executable()
  local config = vim.lsp.config.dlsp
  return config and type(config.cmd) == 'table' and config.cmd[1] or nil
end

local function check_neovim()
  if vim.fn.has('nvim-0.11') == 0 then
    health.error('Neovim 0.11 or newer is needed')
  elseif require('dlsp.native').available() then
    health.ok('Neovim shows suggestions itself (vim.lsp.inline_completion)')
  else
    health.ok('this Neovim has no inline completion: the plugin shows suggestions')
  end
end

local function check_server()
  local command = executable()
  if not command then
    health.info('the server is started by a function of yours')
  elseif vim.fn.executable(command) == 0 then
    health.error(command .. ' is not executable', {
      'install it: pip install /path/to/a/checkout (it is not in the package index yet)',
      "or say where it is: vim.lsp.config('dlsp', { cmd = { '/path/to/dlsp' } })",
    })
  else
    local ran = vim.system({ command, '--version' }, { text = true }):wait(10000)
    local said = vim.trim((ran.stdout or '') .. (ran.stderr or ''))
    if ran.code == 0 then
      health.ok(said .. ' at ' .. vim.fn.exepath(command))
    else
      health.error(command .. ' --version failed: ' .. said)
    end
  end
end

local function check_client()
  if not vim.lsp.is_enabled('dlsp') then
    health.error('not enabled', { "put vim.lsp.enable('dlsp') into your init.lua" })
    return
  end
  local clients = vim.lsp.get_clients({ name = 'dlsp' })
  if #clients == 0 then
    health.warn('no buffer is served yet', { 'open a file with a file type' })
    return
  end
  for _, line in ipairs(require('dlsp.status').lines()) do
    health.info(line)
  end
end

local function check_keys()
  for _, map in ipairs(vim.api.nvim_get_keymap('i')) do
    local target = (map.rhs or '') .. (map.desc or '')
    if not vim.startswith(map.lhs, '<Plug>') and target:find('dlsp', 1, true) then
      health.ok(map.lhs .. ' is mapped')
      return
    end
  end
  health.warn('no key in insert mode mentions dlsp', { 'see :help dlsp-keys' })
end

function M.check()
  health.start('dlsp')
  check_neovim()
  if vim.fn.has('nvim-0.11') == 1 then
    check_server()
    check_client()
    check_keys()
  end
end

return M
