--- Neovim's own inline completion (0.12) behind the functions that `dlsp.ghost` has: it asks and
--- shows; this accepts, because its own `get()` inserts what the user has typed in the meantime once
--- more, and knows no words or lines.
local ghost = require('dlsp.ghost')
local suggestion_of = require('dlsp.suggestion')

local M = {}

local METHOD = 'textDocument/inlineCompletion'

--- Where the question was asked whose answer is shown, and those not answered yet.
---@type table<integer, dlsp.Place>
local shown, asked = {}, {}

---@return boolean
function M.available()
  return vim.lsp.inline_completion ~= nil
end

--- Whether Neovim shows something of its own in the current buffer.
---@return boolean
function M.visible()
  local namespace = vim.api.nvim_get_namespaces()['nvim.lsp.inline_completion']
  return namespace ~= nil and #vim.api.nvim_buf_get_extmarks(0, namespace, 0, -1, { limit = 1 }) > 0
end

---@class dlsp.RequestEvent what the event LspRequest tells
---@field buf integer
---@field data { request_id: integer, request: { method: string, type: string } }

---@param event dlsp.RequestEvent
local function followed_request(event)
  local request, id = event.data.request, event.data.request_id
  if request.method ~= METHOD or event.buf ~= vim.api.nvim_get_current_buf() then
    return
  end
  if request.type == 'pending' then
    asked[id] = suggestion_of.here(event.buf)
  elseif request.type == 'complete' then
    shown[event.buf], asked[id] = asked[id], nil
    vim.schedule(function()
      if vim.fn.pumvisible() == 1 then
        M.dismiss() -- the menu goes first
      elseif M.visible() then
        ghost.dismiss() -- Neovim shows the rest itself now
      end
    end)
  end
end

---@param bufnr integer
function M.attach(bufnr)
  local group = vim.api.nvim_create_augroup('dlsp.native.' .. bufnr, {})
  vim.lsp.inline_completion.enable(true, { bufnr = bufnr })
  vim.api.nvim_create_autocmd('LspRequest', {
    group = group,
    buffer = bufnr,
    callback = followed_request,
  })
  vim.api.nvim_create_autocmd({ 'CursorMovedI', 'TextChangedP' }, {
    group = group,
    buffer = bufnr,
    callback = ghost.moved,
  })
  vim.api.nvim_create_autocmd({ 'InsertLeave', 'BufLeave' }, {
    group = group,
    buffer = bufnr,
    callback = function()
      ghost.dismiss()
    end,
  })
end

---@param item vim.lsp.inline_completion.Item
---@param piece dlsp.Piece
local function insert(item, piece)
  local bufnr = vim.api.nvim_get_current_buf()
  local place = shown[bufnr]
  if not place or type(item.insert_text) ~= 'string' then
    return item -- a snippet of another server: Neovim knows how
  end
  local range
  if item.range then
    local _, first, _, last = item.range:to_extmark()
    range = { first = first, last = last }
  end
  local read = { text = item.insert_text, range = range, command = item.command }
  local made = suggestion_of.make(place, read, item.client_id)
  local followed = made and suggestion_of.follow(made, suggestion_of.here(bufnr))
  local rest = followed and suggestion_of.insert(followed, piece)
  if rest then
    ghost.show(rest)
  end
end

---@param piece dlsp.Piece
---@return boolean
function M.accept(piece)
  return M.available()
    and M.visible()
    and vim.lsp.inline_completion.get({
      on_accept = function(item)
        return insert(item, piece)
      end,
    })
end

---@return boolean
function M.next()
  local visible = M.available() and M.visible()
  if visible then
    vim.lsp.inline_completion.select()
  end
  return visible
end

---@return boolean
function M.dismiss()
  -- Accepting nothing is how Neovim lets go of what it shows.
  return M.available()
    and M.visible()
    and vim.lsp.inline_completion.get({
      on_accept = function() end,
    })
end

return M
