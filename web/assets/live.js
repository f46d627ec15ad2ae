// What the page does by itself: turns, changes, keys.
