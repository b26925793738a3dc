"""Settings of run_multiple_choice. Each field is the flag of that name."""

import dataclasses

from bert_tf.runs.flags.setting_fields import Group
from bert_tf.runs.flags.settings import EvaluationOptions, FineTuningFiles


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultipleChoiceSettings(FineTuningFiles, EvaluationOptions):
    data_dir: str = Group.DATA.setting(help="Folder with SWAG's train.csv, val.csv and test.csv.")
