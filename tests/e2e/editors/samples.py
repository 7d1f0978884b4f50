"""Code to complete whose continuation the default model is sure of."""

#: Ends where the body of the last function begins.
START = "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n"
#: The line that belongs there, of which the tests type the beginning.
WHOLE = "    return a - b"

TYPESCRIPT = """\
function add(a: number, b: number): number {
  return a + b;
}

function subtract(a: number, b: number): number {
}
"""

EMOJI = 'def add(a, b):\n    return "🙂", a + b\n\n\ndef subtract(a, b):\n'

#: Here "print(" goes on with "product)", which stands nowhere else.
PAIRS = (
    "def add(a, b):\n    return a + b\n\n\n"
    "total = add(1, 2)\nprint(total)\nproduct = multiply(3, 4)\n"
)
