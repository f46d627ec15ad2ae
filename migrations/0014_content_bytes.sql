-- Pages, contexts and batches are bounded by what they read, which is content: media as data and signatures of reasoning are no
-- plain text, and what a value takes in its table is what it takes compressed. Null where it was stored by a server of before:
-- such a row is measured when it is read (see docs/decisions/0024). Nothing is rewritten, and older servers go on storing.

alter table ai_message
    add column content_bytes integer;                           -- bytes of content's text; null: stored before there was this column
