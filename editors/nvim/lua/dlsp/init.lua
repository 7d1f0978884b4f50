--- What keys call. Each function acts on what is shown in the current buffer and returns whether
--- there was anything to act on, so that a mapping can fall back to what the key does otherwise.
---
--- Neovim 0.12 shows suggestions itself (`dlsp.native`); what it has no way to show (all of it in
--- 0.11, the rest after a word or line was accepted, a suggestion asked for by hand) `dlsp.ghost`
--- shows.
local M = {}

---@param piece dlsp.Piece
---@return boolean
local function accept(piece)
  return require('dlsp.ghost').accept(piece) or require('dlsp.native').accept(piece)
end

--- Inserts the suggestion.
---@return boolean
function M.accept()
  return accept('all')
end

--- Inserts its next word and keeps showing the rest.
---@return boolean
function M.accept_word()
  return accept('word')
end

--- Inserts its next line and keeps showing the rest.
---@return boolean
function M.accept_line()
  return accept('line')
end

--- Shows the next suggestion, where the server offered several.
---@return boolean
function M.next()
  return require('dlsp.ghost').next() or require('dlsp.native').next()
end

--- Hides the suggestion until something is typed.
---@return boolean
function M.dismiss()
  local shown = require('dlsp.ghost').dismiss()
  return require('dlsp.native').dismiss() or shown
end

--- Asks for a suggestion here and now; in the mode "manual" this is the only way to get one.
---@return boolean
function M.request()
  return require('dlsp.ghost').request(vim.api.nvim_get_current_buf(), { invoked = true })
end

--- For an <expr> mapping of Tab: inserts the suggestion, or else is Tab.
---@return string keys
function M.tab()
  return M.accept() and '' or '<Tab>'
end

--- Whether a suggestion is shown in the current buffer.
---@return boolean
function M.visible()
  return require('dlsp.ghost').visible() or require('dlsp.native').visible()
end

--- A word or two for a status line, empty where dlsp does not run:
--- `%{v:lua.require'dlsp'.statusline()}`.
---@return string
function M.statusline()
  return require('dlsp.status').line()
end

return M
