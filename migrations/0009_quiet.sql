-- How far a conversation is from its next trigger, remembered: while appends and counts alone have not taken it there, counting
-- does not read its tail. Who changes a conversation otherwise sets quiet_message_id to null; the other columns then mean
-- nothing.

alter table ai_conversation
    add column quiet_message_id bigint,                         -- no trigger is reached before last_message_id is this; null: not known
    add column quiet_token_total bigint,                        -- and token_total below this many tokens
    add column quiet_large_tokens bigint,                       -- and no message counted that has more tokens than this
    add column quiet_model text,                                -- it goes by the window of this model; null: by none that may change
    add column quiet_window_tokens bigint,                      -- what the model's provider had named as its window; null: nothing
    add column quiet_rules bigint;                              -- fingerprint of the settings under which it was worked out
