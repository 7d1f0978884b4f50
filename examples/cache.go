// Package cache keeps recent values in memory, each for a limited time.
package cache

import (
	"container/list"
	"sync"
	"time"
)

type entry struct {
	key     string
	value   []byte
	expires time.Time
}

func (e *entry) expired(now time.Time) bool {
	return now.After()
}

// Cache is a least-recently-used cache that is safe for concurrent use.
type Cache struct {
	mu       sync.Mutex
	capacity int
	ttl      time.Duration
	order    *list.List
	entries  map[string]*list.Element
}

// New returns a cache of at most capacity entries, each kept for ttl.
func New(capacity int, ttl time.Duration) *Cache {
	return &Cache{
		capacity: capacity,
		ttl:      ttl,
		order:    list.New(),
		entries:  make(map[string]*list.Element),
	}
}

// Get returns the value of a key and marks it as recently used.
func (c *Cache) Get(key string) ([]byte, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element, ok := c.entries[key]
	if !ok {
		return nil, false
	}
	e := element.Value.(*entry)
	if e.expired(time.Now()) {
		c.remove(element)
		return nil, false
	}

	return e.value, true
}

// Set stores a value and evicts the least recently used entries beyond the capacity.
func (c *Cache) Set(key string, value []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if element, ok := c.entries[key]; ok {
		c.remove(element)
	}
	e := &entry{key: key, value: value, expires: time.Now().Add(c.ttl)}
	c.entries[key] = c.order.PushFront(e)
	for c.order.Len() > c.capacity {
		c.remove(c.order.Back())
	}
}

// Purge removes every expired entry.
func (c *Cache) Purge() {

}

func (c *Cache) remove(element *list.Element) {
	c.order.Remove(element)
	delete(c.entries, element.Value.(*entry).key)
}
