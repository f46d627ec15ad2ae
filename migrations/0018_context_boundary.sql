-- Where a context of a conversation starts: the rule that contexts, checkpoints, triggers and summaries share. PostgreSQL inlines the
-- function into each statement, so that only the used columns are read, by index, under the row-level security of the session. It
-- inlines only a function that is `stable`, one select, and neither strict nor security definer.
-- Binaries of an older version call it during a rolling upgrade: it is never changed, a new rule gets a new function.

create function context_boundary(conversation uuid)
returns table (
    separator bigint,                                           -- the message before the last separator; null: there is none
    checkpoint_last bigint,                                     -- the last message of the newest valid checkpoint; null: there is none
    boundary bigint,                                            -- the greater of both, or 0: the context starts after this message
    summary text,                                               -- the checkpoint's summary
    summary_tokens bigint,                                      -- tokens of the summary
    saved_tokens bigint,                                        -- tokens that the checkpoint saves
    generation integer                                          -- how many checkpoints the summary was made from, in a chain
)
language sql stable
begin atomic
    select s.separator, k.last_message_id, greatest(coalesce(s.separator, 0), coalesce(k.last_message_id, 0)),
        k.summary, k.token_usage, k.tokens_before - k.tokens_after, k.generation
    from (
        select max(after_message_id) as separator from ai_separator
        where conversation_id = context_boundary.conversation
    ) as s
    left join lateral (
        -- A checkpoint is valid while the separator that existed when it was made is the last one.
        select last_message_id, summary, token_usage, tokens_before, tokens_after, generation
        from ai_conversation_checkpoint
        where conversation_id = context_boundary.conversation
          and first_message_id = coalesce(s.separator, 0) + 1
        order by last_message_id desc
        limit 1
    ) as k on true;
end;

do $$
begin
    if exists (select from pg_roles where rolname = 'anneal_app') then
        grant execute on function context_boundary(uuid) to anneal_app;
    end if;
end
$$;
