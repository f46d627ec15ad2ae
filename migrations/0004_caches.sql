-- What contexts and model calls cost: versions of each conversation's beginning, what providers billed, what is learnt of models.

create table ai_context_prefix (
    tenant_id            uuid not null,                         -- owner
    conversation_id      uuid not null references ai_conversation on delete cascade, -- conversation
    epoch                bigint not null,                       -- 1, 2, 3 …: versions of the beginning of its contexts
    prefix_hash          bytea not null,                        -- SHA-256 of what the beginning is made of
    boundary_message_id  bigint not null,                       -- the context starts after this message; 0: at the first
    system_prompt_digest bytea not null,                        -- SHA-256 of the system prompt that was sent
    swapped_message_id   bigint not null,                       -- the watermark: newest large message that its summary stands for; 0: none
    swapped_message_ids  bigint[] not null,                     -- every large message after the boundary that its summary stands for
    cut                  boolean not null,                      -- whether a budget or pressure had cut or dropped something
    at_message_id        bigint not null,                       -- newest message when this version was built first
    reason               smallint not null,                     -- 1 first, 2 checkpoint, 3 separator, 4 system prompt, 5 swap, 6 budget, 7 repair, 8 idle
    broken_message_id    bigint not null,                       -- first message sent otherwise than before; 0: everything is
    rewritten_tokens     bigint not null,                       -- tokens that the provider had to write to its cache again
    saved_tokens         bigint not null,                       -- tokens that each call saves from then on
    created_ts           timestamptz not null default now(),    -- when it was built first
    primary key (conversation_id, epoch),
    constraint ai_context_prefix_reason_known check (reason between 1 and 8)
);

create table ai_model_call (
    tenant_id               uuid not null,                      -- owner
    conversation_id         uuid not null references ai_conversation on delete cascade, -- conversation
    request_id              text not null,                      -- the reporting caller's, or made by the server
    request_digest          bytea not null,                     -- SHA-256 of the report
    model                   text not null,                      -- as the caller names it
    context_tokens          bigint not null,                    -- what BuildContext counted of what was sent; 0: not said
    input_tokens            bigint not null,                    -- all input that the provider counted, cached and written included
    cached_tokens           bigint not null,                    -- input that it read from its cache
    written_tokens          bigint not null,                    -- input that it wrote to its cache
    output_tokens           bigint not null,                    -- what the model wrote
    cache_state             smallint not null,                  -- 1 nothing expected, 2 warm, 3 cold though nothing of ours broke it
    created_ts              timestamptz not null default now(), -- when it was reported
    primary key (conversation_id, request_id),
    constraint ai_model_call_state_known check (cache_state between 1 and 3)
);

-- Not of one conversation, and never in one transaction with one: a hint that may be lost.
create table ai_model (
    tenant_id       uuid not null,                              -- owner: providers' limits differ by account
    model           text not null,                              -- as callers name it
    window_tokens   bigint,                                     -- context window that an error of the provider has named; null: none has
    tokens_ratio    double precision,                           -- provider's input tokens for each token counted here, moving mean; null: no report
    reports         bigint not null default 0,                  -- usage reports that went into tokens_ratio
    updated_ts      timestamptz not null default now(),         -- when something was learnt last
    primary key (tenant_id, model),
    constraint ai_model_window_positive check (window_tokens > 0),
    constraint ai_model_ratio_positive check (tokens_ratio > 0)
);
