"""Draws the extension's icon: python media/icon.py (needs Pillow)."""

from pathlib import Path

from PIL import Image, ImageDraw

SIZE, SCALE = 256, 4
BACKGROUND, TYPED, GHOST, CURSOR = "#14171f", "#e6e9f0", "#6b7280", "#7aa2f7"


def main() -> None:
    """Three lines of code: what is typed, a cursor, and grey text after it."""
    image = Image.new("RGBA", (SIZE * SCALE, SIZE * SCALE), (0, 0, 0, 0))
    draw = ImageDraw.Draw(image)

    def bar(left: int, top: int, right: int, bottom: int, colour: str, radius: int = 10) -> None:
        box = tuple(SCALE * edge for edge in (left, top, right, bottom))
        draw.rounded_rectangle(box, radius * SCALE, fill=colour)

    bar(0, 0, SIZE, SIZE, BACKGROUND, radius=48)
    bar(44, 66, 196, 90, TYPED)
    bar(76, 116, 126, 140, TYPED)
    bar(138, 104, 146, 152, CURSOR, radius=4)
    bar(158, 116, 216, 140, GHOST)
    bar(76, 166, 176, 190, GHOST)
    image.resize((SIZE, SIZE), Image.Resampling.LANCZOS).save(
        Path(__file__).with_name("icon.png"), optimize=True
    )


if __name__ == "__main__":
    main()
