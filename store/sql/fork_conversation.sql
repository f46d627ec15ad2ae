-- Creates the conversation $4 as a fork of $2: copies the messages up to $3, and what belongs to them,
-- in one snapshot. $5: its title, $6: its labels; null: those of the source. $7: the digest of the
-- request, if it has an id. The caller has locked the source `for key share`, so that it is not
-- deleted meanwhile; appends do not wait for this lock.
--
-- The copies have the ids, turns, counts, summaries and times of the originals, but no request ids
-- and no change numbers: nothing was appended or changed in the fork. Withdrawn messages stay
-- withdrawn; their content is not copied, so they cannot be restored there. Figures are computed
-- from the copied rows.
--
-- Checkpoints that end at $3 or before hold in the fork, too. The newest version of a context's
-- beginning is copied if it was recorded by then and no change of messages followed: the provider may
-- have it in its cache. It keeps its number, which must stay greater than its change_epoch.
--
-- Returns how many messages there are, how many of them are counted, and the bytes of these: the
-- caller adds the latter two to what the tenant has stored. A title that no caller has given must be
-- made from the copied messages: that of the source may be from a later one.
with source as materialized (
    select agent_id, user_id, title, title_given, metadata, system_prompt, system_prompt_tokens, policy, encoding,
        chat_options
    from ai_conversation
    where tenant_id = $1
      and conversation_id = $2
), copied as (
    insert into ai_message (
        tenant_id, conversation_id, message_id, role, turn, token_estimate, token_count, text_bytes, content_bytes, content,
        content_digest, tool_outline, metadata, summary_cache, summary_tokens, summary_kind, summary_model, summary_prompt,
        summary_ts, summary_input_tokens, summary_output_tokens, summary_duration_ms, created_ts, withdrawn_ts, stopped
    )
    select tenant_id, $4::uuid, message_id, role, turn, token_estimate, token_count, text_bytes, content_bytes, content,
        content_digest, tool_outline, metadata, summary_cache, summary_tokens, summary_kind, summary_model, summary_prompt,
        summary_ts, summary_input_tokens, summary_output_tokens, summary_duration_ms, created_ts, withdrawn_ts, stopped
    from ai_message
    where tenant_id = $1
      and conversation_id = $2
      and message_id <= $3
    order by message_id
    returning message_id, role, turn, coalesce(token_count, token_estimate) as tokens, token_count is not null as is_counted,
        withdrawn_ts is null as stands,
        case when token_count is not null then coalesce(content_bytes, octet_length(content::text)) end as counted_bytes
), figures as (
    -- Turns do not decrease, so the greatest one is that of the newest message.
    select count(*) as messages, count(*) filter (where is_counted) as counted, count(*) filter (where not stands) as withdrawn,
        coalesce(sum(tokens), 0)::bigint as tokens, coalesce(sum(counted_bytes), 0)::bigint as counted_bytes,
        coalesce(max(turn) filter (where stands), 0) as turn, max(message_id) filter (where stands) as newest_standing
    from copied
), separators as (
    insert into ai_separator (tenant_id, conversation_id, after_message_id, created_ts)
    select tenant_id, $4, after_message_id, created_ts
    from ai_separator
    where tenant_id = $1
      and conversation_id = $2
      and after_message_id <= $3
), checkpoints as (
    insert into ai_conversation_checkpoint (
        tenant_id, conversation_id, first_message_id, last_message_id, previous_message_id, summary, token_usage, kind, model,
        prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind, focus,
        duration_ms, model_calls, input_tokens, output_tokens, created_ts
    )
    select tenant_id, $4, first_message_id, last_message_id, previous_message_id, summary, token_usage, kind, model,
        prompt_version, source_first_message_id, source_digest, tokens_before, tokens_after, generation, trigger_kind, focus,
        duration_ms, model_calls, input_tokens, output_tokens, created_ts
    from ai_conversation_checkpoint
    where tenant_id = $1
      and conversation_id = $2
      and last_message_id <= $3
), prefix as (
    insert into ai_context_prefix (
        tenant_id, conversation_id, epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id,
        swapped_message_ids, cut, at_message_id, reason, broken_message_id, rewritten_tokens, saved_tokens, change_epoch, created_ts,
        model, tools_digest, options_digest
    )
    select tenant_id, $4, epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id,
        swapped_message_ids, cut, at_message_id, 1, 0, 0, 0, change_epoch, created_ts, model, tools_digest, options_digest
    from (
        select tenant_id, epoch, prefix_hash, boundary_message_id, system_prompt_digest, swapped_message_id, swapped_message_ids,
            cut, at_message_id, change_epoch, created_ts, model, tools_digest, options_digest
        from ai_context_prefix
        where tenant_id = $1
          and conversation_id = $2
        order by epoch desc
        limit 1
    ) as newest
    where at_message_id <= $3
      and change_epoch is distinct from epoch
), forked as (
    insert into ai_conversation (
        tenant_id, conversation_id, agent_id, user_id, title, title_given, pinned, metadata, system_prompt, system_prompt_tokens,
        policy, encoding, create_digest, last_message_id, last_role, turn, counted_message_id, token_total, withdrawn_messages,
        forked_from_id, forked_message_id, chat_options
    )
    select $1, $4, s.agent_id, s.user_id, coalesce($5::text, s.title), $5 is not null or s.title_given, false,
        coalesce($6::text::jsonb, s.metadata), s.system_prompt, s.system_prompt_tokens, s.policy, s.encoding, $7::bytea,
        f.messages, (select role from copied where message_id = f.newest_standing), f.turn, f.counted, f.tokens,
        nullif(f.withdrawn, 0), $2, f.messages, s.chat_options
    from source as s
    cross join figures as f
    returning title, title_given
)
select f.messages as "messages!", f.counted as "counted!", f.counted_bytes as "counted_bytes!", forked.title as "title!",
    forked.title_given as "title_given!"
from figures as f
cross join forked
