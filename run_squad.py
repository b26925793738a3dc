#!/usr/bin/env python
r"""Fine-tunes BERT on SQuAD 1.1 or 2.0, answers questions about texts, and scores the answers.

The original's command:

    python run_squad.py --vocab_file=$BERT/vocab.txt --bert_config_file=$BERT/bert_config.json \
        --init_checkpoint=$BERT/bert_model.ckpt --do_train=True --train_file=train-v1.1.json \
        --do_predict=True --predict_file=dev-v1.1.json --train_batch_size=12 \
        --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128 \
        --output_dir=/tmp/squad_base/

For SQuAD 2.0 add --version_2_with_negative. If --predict_file has answers, it writes exact match
and F1, and for 2.0 the best --null_score_diff_threshold.
"""

from bert_tf.tasks import program

main = program.main_of("squad")

if __name__ == "__main__":
    program.run(main)
