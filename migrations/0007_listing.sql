-- Appending must not write the indexes of lists each time: they go by a time that follows the last activity in steps.

alter table ai_conversation
    add column listed_ts timestamptz;                           -- last_activity_ts, or at most a minute before it: what lists are found by

update ai_conversation set listed_ts = last_activity_ts;

alter table ai_conversation
    alter column listed_ts set default now(),
    alter column listed_ts set not null;

drop index ai_conversation_by_activity;
drop index ai_conversation_by_user;
drop index ai_conversation_by_agent;
drop index ai_conversation_by_user_and_agent;

-- list_conversations.
create index ai_conversation_by_activity on ai_conversation (tenant_id, listed_ts desc);
-- list_conversations of one user.
create index ai_conversation_by_user on ai_conversation (tenant_id, user_id, listed_ts desc);
-- list_conversations of one agent.
create index ai_conversation_by_agent on ai_conversation (tenant_id, agent_id, listed_ts desc);
-- list_conversations of one user with one agent.
create index ai_conversation_by_user_and_agent on ai_conversation (tenant_id, user_id, agent_id, listed_ts desc);
