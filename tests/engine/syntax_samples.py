"""One small valid document in every language that has a grammar."""

from __future__ import annotations

SAMPLES = {
    "python": '''import os


def area(shape: dict[str, float], scale: float = 1.0) -> float:
    """Return the area of a shape."""
    if shape["kind"] == "circle":
        return 3.14 * shape["r"] ** 2 * scale
    try:
        width, height = shape["w"], shape["h"]
    except KeyError as error:
        raise ValueError(f"no {error!r} in {os.fspath('x')}") from error
    return width * height * scale
''',
    "javascript": """import { readFile } from "fs";

export async function load(path, options = {}) {
  const text = await readFile(path, { encoding: "utf-8", ...options });
  return text.split("\\n").map((line) => ({ line, size: `${line.length} chars` }));
}
""",
    "typescript": """interface Point<T extends number> { x: T; y?: T }

export const norm = (point: Point<number>): number => {
  const { x, y = 0 } = point;
  return Math.sqrt(x * x + y * y);
};
""",
    "tsx": """export function Item({ name }: { name: string }) {
  return (
    <li className="item" onClick={() => alert(name)}>
      {name}
    </li>
  );
}
""",
    "go": """package main

import "fmt"

func sum(values []int) (int, error) {
\ttotal := 0
\tfor _, value := range values {
\t\tif value < 0 {
\t\t\treturn 0, fmt.Errorf("negative: %d", value)
\t\t}
\t\ttotal += value
\t}
\treturn total, nil
}
""",
    "rust": """fn first<'a>(words: &'a [String]) -> Option<&'a str> {
    match words.get(0) {
        Some(word) if !word.is_empty() => Some(word.as_str()),
        _ => None,
    }
}
""",
    "c": """#include <stdio.h>

int main(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        printf("%s\\n", argv[i]);
    }
    return 0;
}
""",
    "cpp": """#include <vector>

template <typename T>
class Stack {
public:
    void push(const T &item) { items_.push_back(item); }
    bool empty() const { return items_.empty(); }
private:
    std::vector<T> items_;
};
""",
    "java": """package demo;

public class Counter {
    private int count = 0;

    public int next(int step) {
        if (step < 1) {
            throw new IllegalArgumentException("step");
        }
        count += step;
        return count;
    }
}
""",
    "csharp": """using System;

namespace Demo {
    public class Counter {
        private int count;
        public int Next(int step) {
            count += step;
            return count;
        }
    }
}
""",
    "ruby": """class Greeter
  def initialize(name)
    @name = name
  end

  def greet(times)
    times.times { |i| puts "#{i}: hello #{@name}" }
  end
end
""",
    "php": """<?php
function greet(string $name, int $times = 1): string {
    $out = [];
    for ($i = 0; $i < $times; $i++) {
        $out[] = "Hello $name";
    }
    return implode("\\n", $out);
}
""",
    "lua": """local function map(list, f)
  local out = {}
  for i, value in ipairs(list) do
    out[i] = f(value)
  end
  return out
end
""",
    "bash": """#!/bin/bash
greet() {
  local name="$1"
  if [ -z "$name" ]; then
    echo "no name" >&2
    return 1
  fi
  echo "hello ${name}"
}
""",
    "json": '{\n  "name": "dlsp",\n  "tags": ["a", "b"],\n  "nested": {"n": 1.5, "x": null}\n}\n',
    "yaml": "name: dlsp\ntags:\n  - a\n  - b\nnested: {n: 1, s: 'x'}\n",
    "toml": '[project]\nname = "d"\ntags = ["a", "b"]\n\n[project.urls]\nhome = "x"\n',
    "html": '<html>\n<body class="a">\n  <p>Hello <b>you</b></p>\n  <br>\n</body>\n</html>\n',
    "css": ".item > a:hover {\n  color: red;\n  margin: 0 auto;\n}\n@media print { p { top: 0 }}\n",
}

#: A hole of each sample as (text before, text that fits, text that does not).
HOLES = {
    "python": ("        return ", '3.14 * shape["r"] ** 2 * scale', "3.14 * ] shape"),
    "javascript": ("  const text = ", None, "await readFile(path, { ];"),
    "typescript": ("  return ", None, "Math.sqrt(x * ) + ;"),
    "tsx": ("  return ", "(", "(]"),
    "go": ("\ttotal := ", "0", "0)"),
    "rust": ("        _ => ", "None,", "None),"),
    "c": ("    return ", "0;", "0 +;"),
    "cpp": ("    void push", None, "(const T &item)] {"),
    "java": ("        count += ", "step;", "step +;"),
    "csharp": ("            count += ", "step;", "step +;"),
    "ruby": ("    @name = ", "name", "name)"),
    "php": ("        $out[] = ", '"Hello $name";', '"Hello $name"];'),
    "lua": ("    out[i] = ", "f(value)", "f(value))"),
    "bash": ("    echo ", '"no name" >&2', '"no name" )'),
    "json": ('  "name": ', '"dlsp",', '"dlsp"],'),
    "yaml": ("nested: ", "{n: 1, s: 'x'}", "{n: 1, s: ]"),
    "toml": ("tags = ", '["a", "b"]', '["a", = "b"]'),
    "html": ("  <p>Hello ", "<b>you</b></p>", "<b>you</b></div></p>"),
    "css": ("  margin: ", "0 auto;", "0 auto; }"),
}
