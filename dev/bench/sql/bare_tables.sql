-- The tables of the bare append: what any store of conversations needs for one message, and nothing else. All ratios of
-- appends are ratios to it, so nothing is ever added here or in bare_append.pgbench.sql; a test compares the tables with
-- their definition. Creates :conversations conversations, whose ids end in their numbers.
create schema bare;

create table bare.conversation (
    conversation_id uuid primary key,
    tenant_id uuid not null,
    last_message_id bigint not null,
    turn integer not null,
    token_total bigint not null
);

create table bare.message (
    conversation_id uuid not null,
    message_id bigint not null,
    tenant_id uuid not null,
    role smallint not null,
    turn integer not null,
    token_estimate integer not null,
    content json not null,
    primary key (conversation_id, message_id)
);

create table bare.job (
    kind smallint not null,
    conversation_id uuid not null,
    generation bigint not null,
    primary key (kind, conversation_id)
);

insert into bare.conversation (conversation_id, tenant_id, last_message_id, turn, token_total)
select ('00000000-0000-7000-8000-' || 100000000000 + n)::uuid, '00000000-0000-7000-8000-000000000001', 0, 0, 0
from generate_series(0, :conversations - 1) as n;
