-- The server as Neovim starts it after `vim.lsp.enable('dlsp')`. Change any of it with
-- `vim.lsp.config('dlsp', { ... })`; the settings are in `:help dlsp-settings`.

---@type vim.lsp.Config
return {
  cmd = { 'dlsp' },
  -- Without `filetypes` every file buffer is served; the server decides where to be quiet.
  root_markers = { '.git', 'pyproject.toml', 'package.json', 'Cargo.toml', 'go.mod' },
  settings = { dlsp = {} },
  handlers = {
    ['dlsp/status'] = function(_, params, context)
      require('dlsp.status').update(context.client_id, params)
    end,
  },
  on_attach = function(client, bufnr)
    require('dlsp.client').attached(client, bufnr)
  end,
  on_exit = function(code, signal, client_id)
    require('dlsp.client').exited(client_id, code, signal)
  end,
}
