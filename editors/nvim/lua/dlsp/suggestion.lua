--- A suggestion as text at a place of a buffer: read from the wire, kept in step with typing, taken
--- in pieces. Knows positions and text; does not know how anything is shown or asked for.
local M = {}

---@alias dlsp.Piece 'all'|'word'|'line'

---@class dlsp.Suggestion
---@field bufnr integer
---@field row integer 0-based
---@field col integer byte at which `text` goes: the cursor when it was made
---@field text string what is still to be inserted
---@field replace integer bytes behind the cursor that it takes the place of
---@field after string the line behind the cursor
---@field client_id integer
---@field command lsp.Command? tells the server that it was accepted

---@class dlsp.Place where a request was made
---@field bufnr integer
---@field row integer 0-based
---@field col integer byte
---@field after string the line behind the cursor

---@param bufnr integer shown in the current window
---@return dlsp.Place
function M.here(bufnr)
  local row, col = unpack(vim.api.nvim_win_get_cursor(0))
  local line = vim.api.nvim_get_current_line()
  return { bufnr = bufnr, row = row - 1, col = col, after = line:sub(col + 1) }
end

--- The suggestion that an item makes at the place where it was asked for; nil when it does not fit
--- there. `range` is in bytes of that line; nil where the item has none.
---@param place dlsp.Place
---@param item { text: string, range: { first: integer, last: integer }?, command: lsp.Command? }
---@param client_id integer
---@return dlsp.Suggestion?
function M.make(place, item, client_id)
  local first, last = place.col, place.col
  if item.range then
    first, last = item.range.first, math.max(item.range.last, place.col)
  end
  local lines = vim.api.nvim_buf_get_lines(place.bufnr, place.row, place.row + 1, false)
  local already = (lines[1] or ''):sub(first + 1, place.col)
  if first > place.col or not vim.startswith(item.text, already) then
    return nil
  end
  return {
    bufnr = place.bufnr,
    row = place.row,
    col = place.col,
    text = item.text:sub(#already + 1),
    replace = last - place.col,
    after = place.after,
    client_id = client_id,
    command = item.command,
  }
end

--- The same suggestion at the cursor now, or nil when what was typed since goes another way.
---
--- An auto-pairs plugin puts closers behind the cursor while one types; when the suggestion brings
--- its own, they are replaced.
---@param suggestion dlsp.Suggestion
---@param now dlsp.Place
---@return dlsp.Suggestion?
function M.follow(suggestion, now)
  if now.bufnr ~= suggestion.bufnr or now.row ~= suggestion.row or now.col < suggestion.col then
    return nil
  end
  local line = vim.api.nvim_get_current_line()
  local typed = line:sub(suggestion.col + 1, now.col)
  local closers = #now.after - #suggestion.after
  if
    closers < 0
    or now.after:sub(closers + 1) ~= suggestion.after
    or not now.after:sub(1, closers):match('^[%)%]}\'"`>]*$')
    or not vim.startswith(suggestion.text, typed)
    or #typed == #suggestion.text
  then
    return nil
  end
  return vim.tbl_extend('force', suggestion, {
    col = now.col,
    text = suggestion.text:sub(#typed + 1),
    replace = suggestion.replace + closers,
    after = now.after,
  })
end

--- The first piece of a text: a word with the blanks before it, or a line.
---@param text string
---@param piece dlsp.Piece
---@return string
function M.first(text, piece)
  if piece == 'all' then
    return text
  elseif piece == 'line' then
    return text:match('^\n*[^\n]*') --[[@as string]]
  end
  return text:match('^%s*[%w_\128-\255]+') or text:match('^%s*[^%w_%s\128-\255]+') or text
end

--- Puts the first piece into the buffer and the cursor behind it; returns what remains, if anything.
---@param suggestion dlsp.Suggestion made or followed to the cursor
---@param piece dlsp.Piece
---@return dlsp.Suggestion?
function M.insert(suggestion, piece)
  local text = M.first(suggestion.text, piece)
  local whole = text == suggestion.text
  local lines = vim.split(text, '\n', { plain = true })
  local row, col = suggestion.row, suggestion.col
  vim.cmd('let &undolevels = &undolevels') -- an undo step of its own
  vim.api.nvim_buf_set_text(
    suggestion.bufnr,
    row,
    col,
    row,
    col + (whole and suggestion.replace or 0),
    lines
  )
  local end_col = #lines[#lines] + (#lines == 1 and col or 0)
  vim.api.nvim_win_set_cursor(0, { row + #lines, end_col })
  if not whole then
    return vim.tbl_extend('force', suggestion, {
      row = row + #lines - 1,
      col = end_col,
      text = suggestion.text:sub(#text + 1),
    })
  end
  local client = vim.lsp.get_client_by_id(suggestion.client_id)
  if client and suggestion.command then
    client:exec_cmd(suggestion.command, { bufnr = suggestion.bufnr })
  end
end

return M
