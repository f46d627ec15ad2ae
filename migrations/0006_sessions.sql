-- Sessions and their conversations, titles made from messages, and what watchers go by.

alter table ai_conversation
    add column title_given boolean not null default true,       -- no title is made from a message: a caller has set one, or it has messages older than made titles
    add column session_key text not null default '',            -- the session that it was made for; '' for none
    add column change_id bigint not null default 0;             -- + 1 per stored summary and checkpoint: what watchers have seen

-- Of the conversations that are there, only those in which nothing was said may still be called by what is said first. The
-- default says so of all others, without writing a row.
alter table ai_conversation alter column title_given set default false;
update ai_conversation set title_given = false where title = '' and last_message_id = 0;

-- list_conversations of one agent.
create index ai_conversation_by_agent on ai_conversation (tenant_id, agent_id, last_activity_ts desc, conversation_id desc);
-- list_conversations of one user with one agent.
create index ai_conversation_by_user_and_agent on ai_conversation (tenant_id, user_id, agent_id, last_activity_ts desc, conversation_id desc);

alter table ai_message
    add column summary_change_id bigint;                        -- the conversation's change_id when summary_cache was stored; null: none

-- conversation_changes: summaries since a watcher last looked.
create index ai_message_by_summary_change on ai_message (conversation_id, summary_change_id) where summary_change_id is not null;

alter table ai_conversation_checkpoint
    add column change_id bigint not null default 0;             -- the conversation's change_id when it was committed; 0: before there were any

-- conversation_changes: checkpoints since a watcher last looked.
create index ai_conversation_checkpoint_by_change on ai_conversation_checkpoint (conversation_id, change_id);

-- What ImportCheckpoint and imported files store beside what 0001 says.
comment on column ai_conversation_checkpoint.kind is '1 llm, 2 extractive, 3 imported';
comment on column ai_conversation_checkpoint.trigger_kind is '1 tokens, 2 messages, 3 manual, 4 imported';
