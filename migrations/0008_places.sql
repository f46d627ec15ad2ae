-- A job dies under its own lock alone: a foreign key would take the conversation's after it, against the order of locks.

alter table ai_job_dead drop constraint ai_job_dead_conversation_id_fkey;

-- claim_jobs reads the index priority by priority.
alter table ai_job add constraint ai_job_priority_known check (priority in (-1, 0));

-- Its only reader, delete_conversation, names the kinds, and so goes by the primary key: every append, claim and end of a job
-- writes one index less.
drop index ai_job_by_conversation;

-- A conversation is found by its key alone. While a table is small, or was when a plan was made, an index that begins with the
-- tenant looks as good to the planner; that a plan may use these only for what goes by listed_ts is what the condition is for.
drop index ai_conversation_by_activity;
drop index ai_conversation_by_user;
drop index ai_conversation_by_agent;
drop index ai_conversation_by_user_and_agent;
-- list_conversations.
create index ai_conversation_by_activity on ai_conversation (tenant_id, listed_ts desc) where listed_ts is not null;
-- list_conversations of one user.
create index ai_conversation_by_user on ai_conversation (tenant_id, user_id, listed_ts desc) where listed_ts is not null;
-- list_conversations of one agent.
create index ai_conversation_by_agent on ai_conversation (tenant_id, agent_id, listed_ts desc) where listed_ts is not null;
-- list_conversations of one user with one agent.
create index ai_conversation_by_user_and_agent on ai_conversation (tenant_id, user_id, agent_id, listed_ts desc)
    where listed_ts is not null;
