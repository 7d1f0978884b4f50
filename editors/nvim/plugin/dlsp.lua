-- Keys to map and the command; nothing is loaded before it is used.
if vim.g.loaded_dlsp or vim.fn.has('nvim-0.11') == 0 then
  return
end
vim.g.loaded_dlsp = true

vim.api.nvim_set_hl(0, 'DlspGhost', {
  default = true,
  link = vim.fn.hlexists('ComplHint') == 1 and 'ComplHint' or 'NonText',
})

for name, action in pairs({
  accept = 'accept',
  ['accept-word'] = 'accept_word',
  ['accept-line'] = 'accept_line',
  next = 'next',
  dismiss = 'dismiss',
  request = 'request',
}) do
  vim.keymap.set('i', ('<Plug>(dlsp-%s)'):format(name), function()
    require('dlsp')[action]()
  end, { desc = 'dlsp: ' .. name })
end

vim.api.nvim_create_user_command('Dlsp', function(call)
  require('dlsp.command').run(call.fargs)
end, {
  nargs = '*',
  desc = 'Local code completion',
  complete = function(lead, line)
    return require('dlsp.command').complete(lead, line)
  end,
})
