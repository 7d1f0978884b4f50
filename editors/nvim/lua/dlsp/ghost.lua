--- Suggestions shown by extmarks, where Neovim does not show them itself. One at a time, at the
--- cursor.
local client_of = require('dlsp.client')
local suggestion_of = require('dlsp.suggestion')

local M = {}

local METHOD = 'textDocument/inlineCompletion'
--- The server has its own idea of when to answer; this only joins the keys of one quick burst.
local DEBOUNCE_MS = 50
local namespace = vim.api.nvim_create_namespace('dlsp.ghost')

---@type dlsp.Suggestion?
local current
--- All that the last answer offered, and which of them is current.
---@type dlsp.Suggestion[], integer
local offered, chosen = {}, 1
---@type { client: vim.lsp.Client, id: integer }?
local pending
---@type integer? the last key's turn: a later one makes it void
local turn = 0

local function clear()
  if current and vim.api.nvim_buf_is_valid(current.bufnr) then
    vim.api.nvim_buf_clear_namespace(current.bufnr, namespace, 0, -1)
  end
  current = nil
end

---@param suggestion dlsp.Suggestion
local function show(suggestion)
  clear()
  current = suggestion
  local lines = vim.split(suggestion.text, '\n', { plain = true })
  local below = vim.tbl_map(function(line)
    return { { line, 'DlspGhost' } }
  end, vim.list_slice(lines, 2))
  vim.api.nvim_buf_set_extmark(suggestion.bufnr, namespace, suggestion.row, suggestion.col, {
    virt_text = { { lines[1], 'DlspGhost' } },
    virt_text_pos = suggestion.replace > 0 and 'overlay' or 'inline',
    virt_lines = #below > 0 and below or nil,
    hl_mode = 'combine',
  })
end

local function cancel()
  turn = turn + 1
  if pending then
    pending.client:cancel_request(pending.id)
    pending = nil
  end
end

--- The suggestion at the cursor now; what no longer fits is hidden.
---@return dlsp.Suggestion?
local function fitting()
  local bufnr = vim.api.nvim_get_current_buf()
  local followed = current and suggestion_of.follow(current, suggestion_of.here(bufnr))
  if not followed or vim.fn.pumvisible() == 1 then
    clear()
    return nil
  end
  return followed
end

---@param line string
---@param range lsp.Range
---@param client vim.lsp.Client
local function in_bytes(line, range, client)
  local function byte(position)
    return vim.str_byteindex(line, client.offset_encoding, position.character, false)
  end
  return { first = byte(range.start), last = byte(range['end']) }
end

---@param result lsp.InlineCompletionItem[]|lsp.InlineCompletionList|nil
---@param place dlsp.Place
---@param client vim.lsp.Client
local function answered(result, place, client)
  local now = suggestion_of.here(vim.api.nvim_get_current_buf())
  local line = vim.api.nvim_get_current_line()
  offered, chosen = {}, 1
  for _, item in ipairs(result and (result.items or result) or {}) do
    local range = item.range and in_bytes(line, item.range, client)
    local read = { text = item.insertText, range = range, command = item.command }
    local made = suggestion_of.make(place, read, client.id)
    offered[#offered + 1] = made and suggestion_of.follow(made, now)
  end
  local inserting = vim.startswith(vim.api.nvim_get_mode().mode, 'i')
  if offered[1] and inserting and vim.fn.pumvisible() == 0 then
    show(offered[1])
  else
    clear()
  end
end

--- Asks for suggestions at the cursor; an earlier question is withdrawn.
---@param bufnr integer the current buffer
---@param how { invoked: boolean }
---@return boolean asked
function M.request(bufnr, how)
  cancel()
  local client = client_of.find(bufnr)
  if not client or not client:supports_method(METHOD, bufnr) then
    return false
  end
  local place = suggestion_of.here(bufnr)
  local params =
    vim.tbl_extend('force', vim.lsp.util.make_position_params(0, client.offset_encoding), {
      context = { triggerKind = how.invoked and 1 or 2 },
    })
  local mine = turn
  local sent, id = client:request(METHOD, params, function(err, result)
    if mine == turn and bufnr == vim.api.nvim_get_current_buf() then
      pending = nil
      answered(not err and result or nil, place, client)
    end
  end, bufnr)
  pending = sent and id and { client = client, id = id } or nil
  return sent
end

--- Serves a buffer all by itself: for a Neovim without inline completion of its own.
---@param bufnr integer
function M.attach(bufnr)
  local group = vim.api.nvim_create_augroup('dlsp.ghost.' .. bufnr, {})
  vim.api.nvim_create_autocmd({ 'InsertEnter', 'CursorMovedI', 'TextChangedP' }, {
    group = group,
    buffer = bufnr,
    callback = function()
      M.moved()
      cancel()
      local mine = turn
      vim.defer_fn(function()
        if mine == turn and bufnr == vim.api.nvim_get_current_buf() then
          M.request(bufnr, { invoked = false })
        end
      end, DEBOUNCE_MS)
    end,
  })
  vim.api.nvim_create_autocmd({ 'InsertLeave', 'BufLeave' }, {
    group = group,
    buffer = bufnr,
    callback = function()
      M.dismiss()
    end,
  })
end

--- Keeps what is shown in step with the cursor.
function M.moved()
  local followed = fitting()
  if followed then
    show(followed)
  end
end

--- Shows a suggestion that somebody else got, at the cursor.
---@param suggestion dlsp.Suggestion
function M.show(suggestion)
  offered, chosen = { suggestion }, 1
  show(suggestion)
end

---@return boolean
function M.visible()
  return current ~= nil and current.bufnr == vim.api.nvim_get_current_buf()
end

---@param piece dlsp.Piece
---@return boolean
function M.accept(piece)
  if not fitting() then
    return false
  end
  -- Scheduled: an <expr> mapping must not change the text, and when keys come in a burst it runs before
  -- the ones in front of it are in the buffer.
  vim.schedule(function()
    local followed = fitting()
    cancel()
    local rest = followed and suggestion_of.insert(followed, piece)
    if rest then
      M.show(rest)
    else
      clear()
    end
  end)
  return true
end

---@return boolean
function M.next()
  if not M.visible() or #offered < 2 then
    return M.visible()
  end
  chosen = chosen % #offered + 1
  local followed =
    suggestion_of.follow(offered[chosen], suggestion_of.here(vim.api.nvim_get_current_buf()))
  if followed then
    show(followed)
  end
  return true
end

---@return boolean
function M.dismiss()
  cancel()
  local shown = current ~= nil
  clear()
  return shown
end

return M
