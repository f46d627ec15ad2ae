"""OperatorService: the queues, the dead jobs, the models, and a check of the promises.

Set up as first_session.py says, then: PYTHONPATH=target/python python3 examples/python/operators.py [CONVERSATION_ID …]
"""

import os
import sys

import grpc
from anneal.v1 import operator_service_pb2 as operator, operator_service_pb2_grpc as operator_grpc


def main(conversations: list[str]) -> None:
    with grpc.insecure_channel(os.environ.get("ANNEAL_GRPC", "127.0.0.1:50051")) as channel:
        stub = operator_grpc.OperatorServiceStub(channel)
        for queue in stub.GetQueueStats(operator.GetQueueStatsRequest(), timeout=5).queues:
            print(f"{operator.JobKind.Name(queue.kind)}: {queue.waiting} waiting, {queue.running} running, {queue.dead} dead")
        dead = stub.ListJobs(operator.ListJobsRequest(state=operator.JOB_STATE_DEAD), timeout=5).jobs
        for job in dead:  # RequeueJob starts it again, DiscardJob deletes it
            print(f"dead after {job.attempts} starts: {operator.JobKind.Name(job.kind)} of {job.conversation_id}: {job.last_error}")
        for model in stub.GetModelStats(operator.GetModelStatsRequest(), timeout=5).models:
            print(f"{model.model}: {model.calls_today} calls today, {model.failed_calls_today} failed")
        for conversation_id in conversations:
            verified = stub.VerifyConversation(operator.VerifyConversationRequest(conversation_id=conversation_id), timeout=60)
            for violation in verified.violations:
                print(f"promise {violation.promise} is broken: {violation.description}")
            print(f"{conversation_id}: {verified.messages_checked} messages checked, {len(verified.violations)} violations")


if __name__ == "__main__":
    main(sys.argv[1:])
