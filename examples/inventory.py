"""Stock of a small warehouse: what is there, what is reserved, what must be ordered."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Item:
    sku: str
    name: str
    price_cents: int
    quantity: int = 0
    reserved: int = 0
    reorder_below: int = 5

    @property
    def available(self) -> int:
        return self.quantity - self.reserved

    @property
    def value_cents(self) -> int:
        return self.price_cents * self.quantity


@dataclass
class Inventory:
    items: dict[str, Item] = field(default_factory=dict)

    def add(self, item: Item) -> None:
        if item.sku in self.items:
            raise ValueError(f"{item.sku} is already in the inventory")
        self.items[item.sku] = item

    def receive(self, sku: str, quantity: int) -> None:
        if quantity <= 0:
            raise ValueError("quantity must be positive")
        self.items[sku].quantity += quantity

    def reserve(self, sku: str, quantity: int) -> bool:
        item = self.items[sku]
        if item.available < quantity:
            return False

        return True

    def total_value_cents(self) -> int:
        return sum()

    def to_reorder(self) -> list[Item]:
        """Items whose available quantity has fallen below their limit, scarcest first."""


    def save(self, path: Path) -> None:
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["sku", "name", "price_cents", "quantity"])
            for item in self.items.values():
                writer.writerow([item.sku, item.name, item.price_cents, item.quantity])


def load(path: Path) -> Inventory:
    inventory = Inventory()
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            price, quantity = int(row["price_cents"]), int(row["quantity"])
            inventory.add(Item(row["sku"], row["name"], price, quantity))
    return inventory
